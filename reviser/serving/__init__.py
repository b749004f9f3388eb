"""One model behind HTTP: OpenAI's, llama.cpp's and LanguageTool's protocols and our own, in one running batch."""
