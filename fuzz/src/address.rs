//! Client addresses.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is what the fuzzer looks for"
)]

use std::net::{Ipv4Addr, Ipv6Addr};

use weir_base::address::AddressGroup;

/// [`AddressGroup::read`] of one address. Checks that an independent parser finds the same plain IPv4 address, that
/// every address of a group belongs to it, and that different groups have different keys.
pub fn address(data: &[u8]) {
    let group = AddressGroup::read(data);
    if let Some(octets) = plain_v4(data) {
        assert_eq!(group, AddressGroup::V4(octets));
    }
    match group {
        AddressGroup::V4(octets) => check_v4(octets),
        AddressGroup::V6(network) => check_v6(network, data),
        AddressGroup::Other => assert_eq!(group.key(), [0; 9]),
    }
    let is_of_an_address = |byte: &u8| byte.is_ascii_alphanumeric() || b".:[]%".contains(byte);
    assert!(group == AddressGroup::Other || data.iter().all(is_of_an_address));
}

fn check_v4(octets: [u8; 4]) {
    let ip = Ipv4Addr::from(octets);
    let mapped = ip.to_ipv6_mapped();
    for text in [format!("{ip}:1"), format!("{ip}"), format!("[{mapped}]:1")] {
        assert_eq!(
            AddressGroup::read(text.as_bytes()),
            AddressGroup::V4(octets)
        );
    }
    assert_eq!(
        AddressGroup::V4(octets).key()[..5],
        [&[4], &octets[..]].concat()
    );
}

fn check_v6(network: [u8; 8], data: &[u8]) {
    let group = AddressGroup::V6(network);
    // The second half is arbitrary: here it is from the input.
    let host = |n: usize| data.get(n).copied().unwrap_or(1);
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&network);
    (0..8).for_each(|n| octets[8 + n] = host(n));
    let ip = Ipv6Addr::from(octets);
    if ip.to_ipv4_mapped().is_none() {
        assert_eq!(AddressGroup::read(format!("[{ip}]:1").as_bytes()), group);
    }
    assert_eq!(group.key(), [&[6], &network[..]].concat()[..]);
}

/// Parses `1.2.3.4:5`: four numbers up to 255, a port up to 65,535, and nothing else.
fn plain_v4(text: &[u8]) -> Option<[u8; 4]> {
    let (address, port) = std::str::from_utf8(text).ok()?.split_once(':')?;
    let octets: Vec<u8> = address.split('.').map_while(number).collect();
    let is_plain = number::<u16>(port).is_some() && address.split('.').count() == octets.len();
    octets.try_into().ok().filter(|_| is_plain)
}

/// Parses a number in its usual spelling.
fn number<T: std::str::FromStr + ToString>(text: &str) -> Option<T> {
    let number: T = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
