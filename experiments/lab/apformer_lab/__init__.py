"""Studies of small transformers: tasks, models and ways of training that one of them each needs."""
