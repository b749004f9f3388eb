"""Systems that correct text, and the texts they are measured on."""
