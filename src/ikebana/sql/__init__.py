"""SQL: plans that Spark's optimizer made, lowered to Ikebana's. Nothing here needs Spark."""
