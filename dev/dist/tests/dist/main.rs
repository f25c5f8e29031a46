//! A release's folder, made in the fast way (the origin as tests run it, the filters as they are shipped), and tried as it is.

mod chart;
mod containers;
mod folder;
