"""The paper's own figures, cost tables, span operators, and its reproduction."""
