"""Learning from the states that a model gets itself into: rollouts of its weights, and what is made of them."""
