"""What the master does beside serving: it deletes, tidies, keeps an agent, asks samplers."""
