"""What a run would take on machines that are not at hand: memory, time and chips."""
