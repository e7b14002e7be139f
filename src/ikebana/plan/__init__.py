"""Plans: what every front end produces, and the renderer that turns a plan into operators."""
