//! Addresses truncated to networks, so that they identify no household: /24 for IPv4, /48 for IPv6.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;

/// The network of an address; the rest of the address is never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Network {
    /// The first 24 bits of an IPv4 address, including IPv4-mapped ones (`::ffff:1.2.3.4`).
    V4([u8; 3]),
    /// The first 48 bits of an IPv6 address.
    V6([u8; 6]),
}

/// The text is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a network such as 203.0.113.0/24 or 2001:db8:7::/48")]
pub struct NetworkError;

impl Network {
    /// The network of Envoy's `source.address` (`1.2.3.4:5`, `[2001:db8::1]:5`), or of an address without a port.
    /// `None` for other text, such as the path of a socket.
    pub fn from_address(address: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(address).ok()?;
        let with_port = text.parse::<SocketAddr>().map(|socket| socket.ip());
        let ip = with_port.or_else(|_| text.parse::<IpAddr>()).ok()?;
        Some(Self::of_ip(ip))
    }

    /// The network of `ip`.
    pub fn of_ip(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => {
                let [a, b, c, _] = ip.octets();
                Self::V4([a, b, c])
            }
            IpAddr::V6(ip) => {
                let [a, b, c, d, e, f, ..] = ip.octets();
                Self::V6([a, b, c, d, e, f])
            }
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::V4(octets) => write!(f, "{}/24", Ipv4Addr::from(octets_v4(octets))),
            Self::V6(octets) => write!(f, "{}/48", Ipv6Addr::from(octets_v6(octets))),
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (ip, bits) = text.split_once('/').ok_or(NetworkError)?;
        let ip: IpAddr = ip.parse().map_err(|_| NetworkError)?;
        let network = Self::of_ip(ip);
        let is_one = match network {
            Self::V4(octets) => bits == "24" && ip == IpAddr::from(octets_v4(octets)),
            Self::V6(octets) => bits == "48" && ip == IpAddr::from(octets_v6(octets)),
        };
        is_one.then_some(network).ok_or(NetworkError)
    }
}

const fn octets_v4([a, b, c]: [u8; 3]) -> [u8; 4] {
    [a, b, c, 0]
}

const fn octets_v6([a, b, c, d, e, f]: [u8; 6]) -> [u8; 16] {
    [a, b, c, d, e, f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn address_in_any_notation_is_truncated_to_its_network() {
        let check = |address: &str, expected: Option<&str>| {
            let network =
                Network::from_address(address.as_bytes()).map(|network| network.to_string());
            assert_eq!(network.as_deref(), expected, "{address}");
        };
        for address in [
            "203.0.113.7:80",
            "203.0.113.7",
            "[::ffff:203.0.113.7]:80",
            "::ffff:203.0.113.9",
        ] {
            check(address, Some("203.0.113.0/24"));
        }
        check("[2001:db8:7:8::1]:5", Some("2001:db8:7::/48"));
        check("2001:db8:7:9:a:b:c:d", Some("2001:db8:7::/48"));
        check("::1", Some("::/48"));
        for none in ["", "/tmp/a.sock", "localhost:5", "203.0.113", "[::1]"] {
            check(none, None);
        }
        assert_eq!(Network::from_address(b"1.2.3.4\xff"), None);
    }

    #[test]
    fn only_valid_networks_are_parsed() {
        for bad in [
            "203.0.113.7/24",
            "203.0.113.0/25",
            "203.0.113.0",
            "2001:db8:7:8::/48",
            "2001:db8:7::/64",
            "::ffff:203.0.113.0/24",
            "/24",
            "",
        ] {
            assert_eq!(bad.parse::<Network>(), Err(NetworkError), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn network_text_round_trips(ip: IpAddr) {
            let network = Network::of_ip(ip);
            prop_assert_eq!(network.to_string().parse(), Ok(network));
            // Truncation is idempotent.
            let text = network.to_string();
            let (first, _) = text.split_once('/').unwrap();
            prop_assert_eq!(Network::from_address(first.as_bytes()), Some(network));
        }

        #[test]
        fn network_ignores_the_last_address_bits(ip: IpAddr, low: u8) {
            let other = match ip.to_canonical() {
                IpAddr::V4(ip) => {
                    let [a, b, c, _] = ip.octets();
                    IpAddr::from([a, b, c, low])
                }
                IpAddr::V6(ip) => {
                    let mut octets = ip.octets();
                    octets[6..].fill(low);
                    IpAddr::from(octets)
                }
            };
            // Changing the last bits may have turned the address into an IPv4 one.
            prop_assume!(other.to_canonical().is_ipv4() == ip.to_canonical().is_ipv4());
            prop_assert_eq!(Network::of_ip(other), Network::of_ip(ip));
            prop_assert_eq!(Network::from_address(format!("{}", SocketAddr::new(ip, 1)).as_bytes()), Some(Network::of_ip(ip)));
        }

        #[test]
        fn no_bytes_panic_the_reader(address: Vec<u8>) {
            let _ = Network::from_address(&address);
            let _ = core::str::from_utf8(&address).map(str::parse::<Network>);
        }
    }
}
