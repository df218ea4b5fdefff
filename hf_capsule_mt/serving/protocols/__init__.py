"""The protocols that clients speak: LibreTranslate's, and DeepL's with its documents and glossaries."""
