"""A server of translations, for programs that speak LibreTranslate's or DeepL's protocol."""
