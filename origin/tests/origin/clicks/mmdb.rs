//! Writes small databases in MaxMind's format, version 2.0: a binary tree over the bits of IPv4 addresses, whose leaves
//! point to records in MaxMind's own encoding. <https://maxmind.github.io/MaxMind-DB/>

use std::net::Ipv4Addr;

/// A value of a record.
pub enum Data {
    Text(&'static str),
    Short(u16),
    Number(u32),
    Long(u64),
    Map(Vec<(&'static str, Data)>),
    List(Vec<Data>),
}

use Data::{List, Long, Map, Number, Short, Text};

/// A node of the tree: the target of each bit.
#[derive(Clone, Copy, Default)]
struct Node([Leads; 2]);

#[derive(Clone, Copy, Default)]
enum Leads {
    #[default]
    Nowhere,
    ToNode(usize),
    ToRecord(usize),
}

/// Builds a database of these networks: address, prefix length, record.
pub fn database(kind: &'static str, networks: &[(Ipv4Addr, u32, Data)]) -> Vec<u8> {
    let mut nodes = vec![Node::default()];
    let mut records = Vec::new();
    for (address, bits, record) in networks {
        insert(&mut nodes, u32::from(*address), *bits, records.len());
        encode(record, &mut records);
    }
    let count = nodes.len();
    let mut out = Vec::new();
    for leads in nodes.iter().flat_map(|node| node.0) {
        // Record offsets count from the end of the tree plus 16 empty bytes.
        let number = match leads {
            Leads::Nowhere => count,
            Leads::ToNode(node) => node,
            Leads::ToRecord(offset) => count + 16 + offset,
        };
        out.extend(&u32::try_from(number).unwrap().to_be_bytes()[1..]);
    }
    out.extend([0; 16]);
    out.extend(records);
    out.extend(b"\xab\xcd\xefMaxMind.com");
    encode(&metadata(kind, u32::try_from(count).unwrap()), &mut out);
    out
}

fn metadata(kind: &'static str, nodes: u32) -> Data {
    Map(vec![
        ("node_count", Number(nodes)),
        ("record_size", Short(24)),
        ("ip_version", Short(4)),
        ("database_type", Text(kind)),
        ("languages", List(vec![])),
        ("binary_format_major_version", Short(2)),
        ("binary_format_minor_version", Short(0)),
        ("build_epoch", Long(1)),
        ("description", Map(vec![])),
    ])
}

fn insert(nodes: &mut Vec<Node>, address: u32, bits: u32, record: usize) {
    let mut at = 0;
    for bit in 0..bits {
        let side = (address >> (31 - bit) & 1) as usize;
        if bit + 1 == bits {
            nodes[at].0[side] = Leads::ToRecord(record);
            return;
        }
        at = match nodes[at].0[side] {
            Leads::ToNode(node) => node,
            _ => {
                nodes.push(Node::default());
                let node = nodes.len() - 1;
                nodes[at].0[side] = Leads::ToNode(node);
                node
            }
        };
    }
}

/// Lists and maps support sizes below 29 only.
fn encode(data: &Data, out: &mut Vec<u8>) {
    let head = |kind: u8, size: usize| (kind << 5) | u8::try_from(size).unwrap();
    match data {
        Text(text) => {
            // From 29 on, the next byte has the rest of the size.
            out.push(head(2, text.len().min(29)));
            out.extend(
                text.len()
                    .checked_sub(29)
                    .map(|more| u8::try_from(more).unwrap()),
            );
            out.extend(text.as_bytes());
        }
        Short(number) => {
            out.push(head(5, 2));
            out.extend(number.to_be_bytes());
        }
        // An extended type: 7 + 2.
        Long(number) => {
            out.extend([head(0, 8), 2]);
            out.extend(number.to_be_bytes());
        }
        Number(number) => {
            out.push(head(6, 4));
            out.extend(number.to_be_bytes());
        }
        Map(members) => {
            out.push(head(7, members.len()));
            for (name, value) in members {
                encode(&Text(name), out);
                encode(value, out);
            }
        }
        // An extended type: 7 + 4.
        List(values) => {
            out.extend([head(0, values.len()), 4]);
            values.iter().for_each(|value| encode(value, out));
        }
    }
}
