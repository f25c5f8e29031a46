//! Limits: the rules that gateways read from Redis. What else a gateway has stands in its own configuration, which the origin does
//! not know; what rules refused, or would have refused in shadow, gateways count in their metrics.

pub mod http;
