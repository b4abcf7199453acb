"""Tables and figures of the papers, each a study that one command runs: `corag reproduce`."""
