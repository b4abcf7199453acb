"""The parts of `corag label`: which questions, one question's rows, tables, and what the work cost."""
