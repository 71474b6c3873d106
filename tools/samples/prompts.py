"""The fixed prompts of the quality check."""

COMPLETION_PROMPTS = (
    "The state of the Union is",
    "Call me Ishmael. Some years ago",
    "It was a dark night, and the ship",
    "Our soldiers",
    "The white whale",
    "It is the duty of the Government to",
    "Hamlet: What is the matter,",
    "We will work together for",
)
CHAT_PROMPTS = (
    "Tell me about the whale.",
    "What can you tell me about the Constitution?",
    "Who are you?",
    "Tell me about the sea.",
    "The American people want peace.",
    "Good morrow, my lord. How do you do?",
    "Write about the ship.",
    "What shall we do for the children of our country?",
)
