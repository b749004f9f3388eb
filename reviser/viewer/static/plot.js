// The cursor's path: actions from left to right, the text from top to bottom, a dot where an insertion lands.

const SIDE = 11, TOP = 8, NUM_SHADES = 12, STRIP = 22;
const LOWEST_SCORE = -8;

class Plot {
  constructor(svg, go) {
    this.svg = svg;
    this.replay = null;
    svg.addEventListener("pointerdown", (event) => {
      svg.setPointerCapture(event.pointerId);
      go(this.actionAt(event));
    });
    svg.addEventListener("pointermove", (event) => {
      if (svg.hasPointerCapture(event.pointerId)) go(this.actionAt(event));
    });
    new ResizeObserver(() => this.draw()).observe(svg);
  }

  show(replay) {
    this.replay = replay;
    this.at = 0;
    this.draw();
  }

  actionAt(event) {
    const share = (event.offsetX - SIDE) / (this.width - 2 * SIDE);
    return Math.round(Math.min(Math.max(share, 0), 1) * this.replay.length);
  }

  x(at) {
    return SIDE + at / Math.max(this.replay.length, 1) * (this.width - 2 * SIDE);
  }

  y(place) {
    return TOP + (place - this.replay.prefix) / this.replay.highest * (this.floor - TOP);
  }

  draw() {
    const box = this.svg.getBoundingClientRect();
    if (this.replay === null || !box.width) return;
    this.width = box.width;
    this.height = box.height;
    this.floor = this.height - (this.replay.example.scores ? STRIP + 10 : TOP);
    const thick = Math.min(Math.max((this.width - 2 * SIDE) / this.replay.length, 2.5), 6).toFixed(1);
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    // Numbers alone stand in this markup.
    this.svg.innerHTML = `<path class="area" d="${this.area()}"/><path class="band" d="${this.bands()}"/>${this.strip()}
      <path class="path" d="${this.path()}"/><path class="leaps" d="${this.leaps()}"/>
      <path class="removals" d="${this.crosses()}"/>
      <g stroke-width="${thick}">${this.dots()}</g>
      <path class="revisions" d="${this.flags()}"/>
      <path class="now"/><circle class="here" r="4.5"/>`;
    // Set here, for a strict policy of the page that opens this one forbids style attributes.
    for (const each of this.svg.querySelectorAll("[data-shade]")) each.style.setProperty("--t", each.dataset.shade);
    this.mark(this.at);
  }

  // All that a cursor can reach, as it grows.
  area() {
    const { lengths, suffix } = this.replay;
    const steps = lengths.map((length, at) => `H${this.x(at).toFixed(1)}V${this.y(length - suffix).toFixed(1)}`);
    return `M${this.x(0)} ${TOP}${steps.join("")}V${TOP}Z`;
  }

  // Protected spans inside of that, pushed along as text grows before them.
  bands() {
    const edge = (places, step) => places.map((place, at) => step(this.x(at).toFixed(1), this.y(place).toFixed(1))).join("");
    return this.replay.guarded.map(({ size, starts }) => {
      const ends = starts.map((start) => start + size);
      const back = ends.map((end, at) => `V${this.y(end).toFixed(1)}H${this.x(at).toFixed(1)}`).reverse().join("");
      return `M${this.x(0)} ${this.y(starts[0])}${edge(starts, (x, y) => `H${x}V${y}`)}${back}Z`;
    }).join("");
  }

  // Each JUMP, from where the cursor stood to where it went.
  leaps() {
    const draw = ([at, from, to]) => {
      const [x, start, end] = [this.x(at - 1), this.y(from), this.y(to)].map((each) => each.toFixed(1));
      return `M${x} ${start}L${this.x(at).toFixed(1)} ${end}`;
    };
    return this.replay.jumps.map(draw).join("");
  }

  path() {
    const steps = this.replay.cursors.map((cursor, at) => `L${this.x(at).toFixed(1)} ${this.y(cursor).toFixed(1)}`);
    return `M${steps.join("").slice(1)}`;
  }

  dots() {
    const shades = Array.from({ length: NUM_SHADES }, () => "");
    for (const [at, place] of this.replay.landings) {
      const shade = Math.min(Math.floor(at / this.replay.length * NUM_SHADES), NUM_SHADES - 1);
      shades[shade] += `M${this.x(at).toFixed(1)} ${this.y(place).toFixed(1)}h0`;
    }
    const draw = (d, shade) => `<path class="dots" data-shade="${(shade + 0.5) / NUM_SHADES}" d="${d}"/>`;
    return shades.map((d, shade) => d && draw(d, shade)).join("");
  }

  crosses() {
    const draw = ([at, place]) => `M${(this.x(at) - 3).toFixed(1)} ${(this.y(place) - 3).toFixed(1)}l6 6m0 -6l-6 6`;
    return this.replay.removals.map(draw).join("");
  }

  // A small triangle on top of each backward revision.
  flags() {
    return this.replay.revisions.map((at) => `M${(this.x(at) - 3.5).toFixed(1)} 0h7l-3.5 5z`).join("");
  }

  // How unlikely each action was.
  strip() {
    const { scores } = this.replay.example;
    if (!scores) return "";
    const bars = scores.map((score, index) => {
      const size = Math.min((score ?? 0) / LOWEST_SCORE, 1) * STRIP;
      return `M${this.x(index + 1).toFixed(1)} ${this.height}v-${Math.max(size, 0).toFixed(1)}`;
    });
    const thick = Math.min(Math.max((this.width - 2 * SIDE) / scores.length - 1, 0.8), 6).toFixed(1);
    return `<path class="strip" stroke-width="${thick}" d="${bars.join("")}"/>`;
  }

  mark(at) {
    this.at = at;
    const now = this.svg.querySelector(".now"), here = this.svg.querySelector(".here");
    if (now === null) return;
    now.setAttribute("d", `M${this.x(at)} 0V${this.height}`);
    here.setAttribute("cx", this.x(at));
    here.setAttribute("cy", this.y(this.replay.cursors[at]));
  }
}
