"""Players that say texts, by OpenAI's client: `text_player` plays the turns, the talk of its API sends them."""
