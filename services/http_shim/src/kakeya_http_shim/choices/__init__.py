"""One answer of the runtime or several at once: what is asked, in a session that is opened and closed for it."""
