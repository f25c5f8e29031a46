//! Groups client addresses for limits and counts.
//!
//! An IPv4 address is a group of its own. An IPv6 address belongs to the group of its first 64 bits. A household or a
//! rented server gets at least that network and can use every address in it. All other values (a Unix socket, an
//! Envoy-internal address, an empty one) form one group.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A group of addresses that count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressGroup {
    /// One IPv4 address, also if it is written as IPv6 (`::ffff:1.2.3.4`).
    V4([u8; 4]),
    /// An IPv6 network: the first 64 bits of its addresses.
    V6([u8; 8]),
    /// Every other value.
    Other,
}

impl AddressGroup {
    /// The group of Envoy's `source.address`: `1.2.3.4:5`, `[2001:db8::1]:5`, or an address without a port.
    pub fn read(address: &[u8]) -> Self {
        let Ok(text) = core::str::from_utf8(address) else {
            return Self::Other;
        };
        let with_port = text.parse::<SocketAddr>().map(|socket| socket.ip());
        match with_port.or_else(|_| text.parse::<IpAddr>()) {
            Ok(ip) => Self::from_ip(ip),
            Err(_) => Self::Other,
        }
    }

    /// The group of a [`key`](Self::key); `None` for the key of [`Other`](Self::Other) and for an invalid key.
    pub fn of_key(key: &[u8]) -> Option<Self> {
        let (kind, rest) = key.split_first()?;
        match (kind, rest) {
            (4, [a, b, c, d, ..]) => Some(Self::V4([*a, *b, *c, *d])),
            (6, rest) => Some(Self::V6(rest.try_into().ok()?)),
            _ => None,
        }
    }

    fn from_ip(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::V4(ip.octets()),
            IpAddr::V6(ip) => Self::V6(network(ip)),
        }
    }

    /// Bytes that identify the group, as input of a hash.
    pub fn key(self) -> [u8; 9] {
        let mut key = [0; 9];
        let [kind, rest @ ..] = &mut key;
        match self {
            Self::V4(octets) => {
                *kind = 4;
                rest.iter_mut()
                    .zip(octets)
                    .for_each(|(to, from)| *to = from);
            }
            Self::V6(network) => {
                *kind = 6;
                *rest = network;
            }
            Self::Other => {}
        }
        key
    }
}

impl fmt::Display for AddressGroup {
    /// `192.0.2.1`, `2001:db8::/64`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(octets) => Ipv4Addr::from(*octets).fmt(f),
            Self::V6(network) => {
                let [a, b, c, d, e, g, h, i] = *network;
                let first = [a, b, c, d, e, g, h, i, 0, 0, 0, 0, 0, 0, 0, 0];
                write!(f, "{}/64", Ipv6Addr::from(first))
            }
            Self::Other => f.write_str("none"),
        }
    }
}

fn network(ip: Ipv6Addr) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = ip.octets();
    [a, b, c, d, e, f, g, h]
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn check(address: &str, expected: AddressGroup) {
        assert_eq!(
            AddressGroup::read(address.as_bytes()),
            expected,
            "{address}"
        );
    }

    #[test]
    fn ipv4_address_in_any_notation_is_its_own_group() {
        for address in [
            "1.2.3.4:5",
            "1.2.3.4",
            "[::ffff:1.2.3.4]:5",
            "::ffff:102:304",
        ] {
            check(address, AddressGroup::V4([1, 2, 3, 4]));
        }
    }

    #[test]
    fn ipv6_addresses_are_grouped_by_64_bit_network() {
        let network = AddressGroup::V6([0x20, 1, 0xd, 0xb8, 0, 7, 0, 8]);
        for address in [
            "[2001:db8:7:8::1]:5",
            "[2001:db8:7:8:ffff::2]:65535",
            "2001:db8:7:8::",
        ] {
            check(address, network);
        }
        check(
            "[2001:db8:7:9::1]:5",
            AddressGroup::V6([0x20, 1, 0xd, 0xb8, 0, 7, 0, 9]),
        );
        check("[::1]:5", AddressGroup::V6([0; 8]));
        // IPv4-compatible IPv6 addresses are obsolete; they do not count as IPv4.
        check("[::1.2.3.4]:5", AddressGroup::V6([0; 8]));
    }

    #[test]
    fn invalid_addresses_share_one_group() {
        for other in [
            "",
            "/tmp/a.sock",
            "envoy://bridge/1",
            "1.2.3.4:",
            "1.2.3:5",
            "[::1]",
            "localhost:5",
            "01.2.3.4:5",
        ] {
            check(other, AddressGroup::Other);
        }
        assert_eq!(AddressGroup::read(b"1.2.3.4:5\xff"), AddressGroup::Other);
    }

    #[test]
    fn network_and_address_with_same_bytes_have_different_keys() {
        let address = AddressGroup::V4([1, 2, 3, 4]);
        let network = AddressGroup::V6([1, 2, 3, 4, 0, 0, 0, 0]);
        assert_ne!(address.key(), network.key());
        assert_ne!(AddressGroup::V6([0; 8]).key(), AddressGroup::Other.key());
    }

    #[test]
    fn group_is_decoded_from_its_key_and_shown_in_usual_notation() {
        for (address, displayed) in [
            ("192.0.2.1:5", "192.0.2.1"),
            ("[2001:db8:7:8::1]:5", "2001:db8:7:8::/64"),
        ] {
            let group = AddressGroup::read(address.as_bytes());
            assert_eq!(AddressGroup::of_key(&group.key()), Some(group));
            assert_eq!(format!("{group}"), displayed);
        }
        let other = AddressGroup::Other;
        assert_eq!(AddressGroup::of_key(&other.key()), None);
        assert_eq!(format!("{other}"), "none");
        for key in [b"".as_slice(), b"\x04", b"\x06abc", b"\x07abcdefgh"] {
            assert_eq!(AddressGroup::of_key(key), None, "{key:?}");
        }
    }

    proptest! {
        #[test]
        fn socket_address_has_the_group_of_its_ip(ip: IpAddr, port: u16) {
            let text = format!("{}", SocketAddr::new(ip, port));
            let group = AddressGroup::read(text.as_bytes());
            prop_assert_eq!(group, AddressGroup::from_ip(ip));
            prop_assert_ne!(group, AddressGroup::Other);
        }

        #[test]
        fn different_groups_have_different_keys(a: IpAddr, b: IpAddr) {
            let (a, b) = (AddressGroup::from_ip(a), AddressGroup::from_ip(b));
            prop_assert_eq!(a == b, a.key() == b.key());
            prop_assert_ne!(a.key(), AddressGroup::Other.key());
        }

        #[test]
        fn no_bytes_panic_the_reader(address: Vec<u8>) {
            let _ = AddressGroup::read(&address).key();
        }
    }
}
