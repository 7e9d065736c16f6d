"""Files written whole or not at all: what the formats that are written share."""
