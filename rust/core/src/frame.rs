//! The columns that carry a step between the core and the workers.
