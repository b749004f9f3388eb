// What axe would say first: texts without contrast, controls without a name, targets too small to touch.

(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const seen = (selector) => Array.from(document.querySelectorAll(selector)).filter((each) => each.checkVisibility());

  // A colour over another, as it is painted.
  const paint = (colour, under) => {
    for (const layer of [`rgb(${under.join()})`, colour]) {
      canvas.fillStyle = layer;
      canvas.fillRect(0, 0, 1, 1);
    }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (colour) => colour
    .map((part) => part / 255)
    .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.unshift(getComputedStyle(at).backgroundColor);
    return layers.reduce((under, colour) => paint(colour, under), [255, 255, 255]);
  };
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const contrast = (element) => {
    const under = behind(element.matches(".above") ? document.querySelector("#sheet") : element);
    const colour = paint(getComputedStyle(element).color, under);
    const [dark, light] = [luminance(colour), luminance(under)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const isDrawn = (each) => !each.closest(".skip, .unseen, noscript") && (!each.closest("#mirror") || each.matches(".above"));

  const nameOf = (element) => {
    const others = (element.getAttribute("aria-labelledby") ?? "").split(" ");
    const said = others.map((id) => document.getElementById(id)?.textContent ?? "").join("");
    const own = element.matches("button, a") ? element.textContent.trim() : "";
    return element.getAttribute("aria-label") || said || element.labels?.length || element.title || own;
  };
  const tell = (element) => element.outerHTML.slice(0, 90);
  const isSmall = (element) => {
    const box = element.getBoundingClientRect();
    return box.height < 43.5 || box.width < 40;
  };
  return {
    pale: seen("body *").filter((each) => hasText(each) && isDrawn(each) && contrast(each) < 4.5)
      .map((each) => [tell(each), contrast(each)]),
    unnamed: seen("button, input, textarea, a, dialog, section, aside, [role=group], [role=toolbar], [role=menu]")
      .filter((each) => !each.closest("[aria-hidden=true]") && !nameOf(each)).map(tell),
    small: seen("button:not(.flip), a:not(.skip)").filter(isSmall).map(tell),
    width: document.documentElement.scrollWidth,
  };
})()
