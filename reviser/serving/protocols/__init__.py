"""What clients speak: OpenAI's, llama.cpp's and LanguageTool's protocols, and our own."""
