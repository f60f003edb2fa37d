"""Ray clusters: the bridge program. Nothing else imports Ray."""
