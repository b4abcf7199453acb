"""A router over kinds of questions: what it needs beside labels, its training, and what it gains."""
