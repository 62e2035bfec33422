"""Problems whose objective or memory depends on when stages run, or whose stages must not overlap."""
