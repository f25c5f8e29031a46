//! Addresses outside the public internet: every entry of IANA's special-purpose registries
//! (<https://www.iana.org/assignments/iana-ipv4-special-registry>,
//! <https://www.iana.org/assignments/iana-ipv6-special-registry>), and multicast.
//!
//! This includes entries that IANA calls globally reachable: they are translators, relays and sinks, not web servers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks by first address and prefix length.
const V4: [(Ipv4Addr, u32); 18] = [
    // This network.
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    // Private use.
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    // Shared by the customers of a carrier.
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    // Loopback, and link-local.
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    // Protocol assignments: DS-Lite, PCP and TURN anycast, NAT64 discovery.
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    // Documentation.
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // AS112, AMT, relays of 6to4.
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    (Ipv4Addr::new(192, 52, 193, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 175, 48, 0), 24),
    // Benchmarks.
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    // Multicast; reserved, with the limited broadcast.
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

const V6: [(Ipv6Addr, u32); 15] = [
    // Unspecified, loopback, and IPv4-compatible addresses.
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), 96),
    // IPv4-mapped; IPv4 behind NAT64.
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48),
    // Discard-only (100::/64) and dummy (100:0:0:1::/64).
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 32),
    // Protocol assignments: Teredo, benchmarks, AMT, AS112, ORCHID, DRIP.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    // Documentation.
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
    // 6to4.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    // AS112.
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48),
    // Segment routing.
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16),
    // Unique local, link-local, and the former site-local.
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10),
    // Multicast.
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
];

/// Whether the address is in one of these networks.
pub(super) fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => V4.iter().any(|(first, prefix)| {
            let differs = address.to_bits() ^ first.to_bits();
            differs.leading_zeros() >= *prefix
        }),
        IpAddr::V6(address) => V6.iter().any(|(first, prefix)| {
            let differs = address.to_bits() ^ first.to_bits();
            differs.leading_zeros() >= *prefix
        }),
    }
}
