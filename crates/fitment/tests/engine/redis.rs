//! A model of all Redis servers, with the commands that the engine uses.

use std::collections::BTreeMap;

use weir_base::resp::{Value, decode};
use weir_fitment::check::StoredAnswer;
use weir_fitment::model::{Map, Product, Routes};
use weir_fitment::redis::{fit_browse, fit_query, fit_route, fit_vehicles};
use weir_fitment::{Cluster, Offset, Placement, Plan, Shape, Sku, Spu, VehicleId};

/// The data of all servers.
#[derive(Default)]
pub struct Redis {
    pub products: BTreeMap<(String, Spu), Product>,
    pub routes: Routes,
    pub map: Map,
    /// Pages by vehicle and position, with their stamps.
    pub pages: BTreeMap<(String, String), (u64, String)>,
    /// The number of calls by script.
    pub calls: BTreeMap<&'static str, usize>,
}

impl Redis {
    /// Stores a SKU and its route.
    pub fn put(&mut self, version: u64, sku: &Sku, place: &Placement, offsets: &[Offset]) {
        let key = (place.cluster.to_string(), place.spu.clone());
        let shape = Shape::from_offsets(Plan::Directory, offsets, 0);
        let product = self.products.entry(key).or_default();
        assert!(product.put(sku, version, false, &shape));
        self.routes.put(sku, version, false, Some(place.clone()));
    }

    /// Runs whole commands on the Redis of one cluster.
    pub fn run(&mut self, cluster: &str, mut commands: &[u8]) -> Vec<u8> {
        let mut replies = Vec::new();
        while !commands.is_empty() {
            let (command, used) = decode(commands).unwrap();
            commands = &commands[used..];
            let Value::Array(words) = command else {
                panic!("{command:?}")
            };
            let words: Vec<String> = words.into_iter().map(text_of).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let ["EVALSHA", digest, keys, rest @ ..] = &words[..] else {
                panic!("{words:?}")
            };
            let (keys, arguments) = rest.split_at(keys.parse().unwrap());
            self.script(cluster, digest, keys, arguments, &mut replies);
        }
        replies
    }

    fn script(
        &mut self,
        cluster: &str,
        digest: &str,
        keys: &[&str],
        args: &[&str],
        out: &mut Vec<u8>,
    ) {
        let scripts = [
            &fit_query::SCRIPT,
            &fit_route::SCRIPT,
            &fit_vehicles::SCRIPT,
            &fit_browse::SCRIPT,
        ];
        let script = scripts
            .into_iter()
            .find(|script| script.sha1_hex() == digest);
        let script = script.expect("a known script");
        *self.calls.entry(script.name).or_default() += 1;
        match script.name {
            "fit_query" => self.query(cluster, keys[0], args, out),
            name => {
                assert_eq!(cluster, Cluster::HOME, "{name} is asked at home");
                match name {
                    "fit_route" => self.route(args, out),
                    "fit_vehicles" => self.vehicles(args, out),
                    _ => self.page(keys[0], args[0], out),
                }
            }
        }
    }

    fn query(&self, cluster: &str, key: &str, args: &[&str], out: &mut Vec<u8>) {
        let spu = key.split(['{', '}']).nth(1).unwrap();
        let product = (cluster.to_owned(), Spu::new(spu).unwrap());
        let count: usize = args[0].parse().unwrap();
        let offset = |text: &&str| Offset::new(text.parse().unwrap()).unwrap();
        let vehicles: Vec<_> = args[1..=count].iter().map(offset).collect();
        let stored = |sku: &&str| {
            let sku = Sku::new(sku).unwrap();
            let product = self.products.get(&product);
            match product.map_or(StoredAnswer::Absent, |product| {
                product.query(&vehicles, &sku)
            }) {
                StoredAnswer::Known(fits) => char::from(b'@' + fits),
                StoredAnswer::Absent => '-',
                StoredAnswer::Lost => '!',
            }
        };
        let text: String = args[count + 1..].iter().map(stored).collect();
        bulk(out, text.as_bytes());
    }

    fn route(&self, skus: &[&str], out: &mut Vec<u8>) {
        array(out, skus.len());
        for sku in skus {
            match self.routes.get(&Sku::new(sku).unwrap()) {
                None => out.extend_from_slice(b"$-1\r\n"),
                Some((version, None)) => bulk(out, version.to_string().as_bytes()),
                Some((version, Some(place))) => {
                    let text = format!("{version} {} {}", place.cluster, place.spu);
                    bulk(out, text.as_bytes());
                }
            }
        }
    }

    fn vehicles(&self, args: &[&str], out: &mut Vec<u8>) {
        let [generation, begin, length] = args else {
            panic!("{args:?}")
        };
        let number = |text: &str| text.parse::<u32>().unwrap();
        let generation = generation.parse().unwrap();
        // Tests have one block.
        let found = self
            .map
            .get(generation, number(begin) / 4, number(length) / 4);
        let Some(((generation, count, stamp), tail)) = found else {
            return out.extend_from_slice(b"$-1\r\n");
        };
        array(out, 4);
        for number in [generation, count.into(), stamp] {
            out.extend_from_slice(format!(":{number}\r\n").as_bytes());
        }
        let id = |vehicle: Option<VehicleId>| vehicle.map_or(0, VehicleId::number).to_be_bytes();
        bulk(out, &tail.into_iter().flat_map(id).collect::<Vec<_>>());
    }

    fn page(&self, key: &str, after: &str, out: &mut Vec<u8>) {
        let vehicle = key.split(['{', '}']).nth(1).unwrap();
        match self.pages.get(&(vehicle.to_owned(), after.to_owned())) {
            None => out.extend_from_slice(b"$-1\r\n"),
            Some((stamp, page)) => {
                array(out, 2);
                out.extend_from_slice(format!(":{stamp}\r\n").as_bytes());
                bulk(out, page.as_bytes());
            }
        }
    }
}

fn text_of(value: Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn array(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(format!("*{length}\r\n").as_bytes());
}
