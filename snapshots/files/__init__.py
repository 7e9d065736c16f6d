"""Files written whole or not at all, and read by guards: what the formats share."""
