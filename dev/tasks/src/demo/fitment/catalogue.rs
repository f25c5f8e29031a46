//! A catalogue computed from numbers: the fitting parts are computable, so every answer can be checked.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use std::fmt::Write;
use std::ops::Range;

/// Each SKU fits some of this many consecutive vehicles, selected by remainders.
const CYCLE: u64 = 1_000;

/// SKUs per product.
const SKUS_EACH: u64 = 5;

const TYPES: [&str; 5] = ["tyre", "oil", "filter", "plug", "wiper"];

/// The size of a catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Catalogue {
    pub(super) vehicles: u64,
    pub(super) skus: u64,
    /// For SKUs with many relations: the number of fitting vehicles per thousand. All other SKUs fit one.
    many: u64,
}

impl Catalogue {
    /// A catalogue with approximately this number of relations: half of the SKUs have few, and the others share the
    /// rest.
    pub(super) fn new(vehicles: u64, skus: u64, relations: u64) -> Self {
        let vehicles = vehicles.next_multiple_of(CYCLE);
        let skus = skus.next_multiple_of(2);
        let half = skus / 2 * (vehicles / CYCLE);
        let many = relations.saturating_sub(half).div_ceil(half);
        Self {
            vehicles,
            skus,
            many: many.clamp(1, CYCLE - 1),
        }
    }

    /// The number of relations.
    pub(super) fn relations(&self) -> u64 {
        let few_and_many = 1 + self.many;
        self.skus / 2 * (self.vehicles / CYCLE) * few_and_many
    }

    /// Vehicle `index`, from 0. Indices beyond the last are unknown vehicles.
    pub(super) fn vehicle(index: u64) -> String {
        // 7,919 and 9,000,000 are coprime, so all IDs differ.
        format!("{}", 1_000_000 + index * 7_919 % 9_000_000)
    }

    /// SKU `index`, from 0. Indices beyond the last are unknown SKUs.
    pub(super) fn sku(index: u64) -> String {
        format!("{}", 100_012_000_000 + index)
    }

    fn spu(index: u64) -> u64 {
        index / SKUS_EACH
    }

    /// Whether a SKU fits a vehicle.
    pub(super) fn fits(&self, sku: u64, vehicle: u64) -> bool {
        // An odd number that is not a multiple of 5: multiplication by it is a permutation of the remainders.
        let factor = 10 * (sku % 97) + [1, 3, 7, 9][(sku % 4) as usize];
        let share = if sku.is_multiple_of(2) { 1 } else { self.many };
        (vehicle * factor + sku * 331) % CYCLE < share
    }

    /// The CSV file of vehicles.
    pub(super) fn vehicles_csv(&self) -> String {
        let mut text = String::from("vehicle,make,model,year,engine\n");
        for index in 0..self.vehicles {
            let (make, year) = (index % 40, 1990 + index % 35);
            let id = Self::vehicle(index);
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{id},Make {make},Model {},{year},", index / 400);
        }
        text
    }

    /// The CSV file of products.
    pub(super) fn products_csv(&self) -> String {
        let mut text = String::from("sku,spu,type,merchant\n");
        for index in 0..self.skus {
            let (sku, spu) = (Self::sku(index), Self::spu(index));
            let kind = TYPES[(spu % 5) as usize];
            let _ = writeln!(text, "{sku},P{spu},{kind},m{}", spu % 50);
        }
        text
    }

    /// The CSV file of the relations of these SKUs.
    pub(super) fn relations_csv(&self, skus: Range<u64>) -> String {
        let mut text = String::from("sku,vehicle\n");
        let vehicles: Vec<String> = (0..self.vehicles).map(Self::vehicle).collect();
        for sku in skus {
            let name = Self::sku(sku);
            for (index, vehicle) in (0..).zip(&vehicles) {
                if self.fits(sku, index) {
                    text.push_str(&name);
                    text.push(',');
                    text.push_str(vehicle);
                    text.push('\n');
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn catalogue_has_its_stated_number_of_relations() {
        let catalogue = Catalogue::new(2_000, 20, 500);
        let count = |sku| (0..2_000).filter(|v| catalogue.fits(sku, *v)).count() as u64;
        let all: u64 = (0..20).map(count).sum();
        assert_eq!(all, catalogue.relations());
        let usual = Catalogue::new(100_000, 20_000, 50_000_000);
        assert_eq!(usual.relations(), 50_000_000);
    }

    #[test]
    fn vehicles_have_unique_seven_digit_ids() {
        let ids: BTreeSet<String> = (0..200_000).map(Catalogue::vehicle).collect();
        assert_eq!(ids.len(), 200_000);
        assert!(ids.iter().all(|id| id.len() == 7));
    }

    #[test]
    fn relations_file_matches_the_catalogue() {
        let catalogue = Catalogue::new(1_000, 4, 40);
        let text = catalogue.relations_csv(1..3);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        for (sku, vehicle) in [(1, 0), (1, 500), (2, 7), (2, 999)] {
            let line = format!("{},{}", Catalogue::sku(sku), Catalogue::vehicle(vehicle));
            let is_there = lines.contains(&line.as_str());
            assert_eq!(is_there, catalogue.fits(sku, vehicle), "{line}");
        }
    }
}
