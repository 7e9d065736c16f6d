"""What a net keeps of its steps: the recorded ones, what feeds and watches them, and a forward that is open."""
