//! A catalogue that follows from numbers: what fits what can be computed, so every answer can be checked.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use std::fmt::Write;
use std::ops::Range;

/// Of so many vehicles in a row a SKU fits some: which, is a matter of remainders.
const CYCLE: u64 = 1_000;

/// SKUs of one product.
const SKUS_EACH: u64 = 5;

const TYPES: [&str; 5] = ["tyre", "oil", "filter", "plug", "wiper"];

/// How large a catalogue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Catalogue {
    pub(super) vehicles: u64,
    pub(super) skus: u64,
    /// Of each thousand vehicles, how many the SKUs with many relations fit. All others fit one.
    many: u64,
}

impl Catalogue {
    /// One with about so many relations: half of the SKUs have few, the others share the rest.
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

    /// How many relations there are.
    pub(super) fn relations(&self) -> u64 {
        let few_and_many = 1 + self.many;
        self.skus / 2 * (self.vehicles / CYCLE) * few_and_many
    }

    /// Vehicle `index`, from 0. What is beyond the last is no vehicle.
    pub(super) fn vehicle(index: u64) -> String {
        // 7,919 and 9,000,000 have no common factor, so no two are the same.
        format!("{}", 1_000_000 + index * 7_919 % 9_000_000)
    }

    /// SKU `index`, from 0. What is beyond the last is no SKU.
    pub(super) fn sku(index: u64) -> String {
        format!("{}", 100_012_000_000 + index)
    }

    fn spu(index: u64) -> u64 {
        index / SKUS_EACH
    }

    /// Whether a SKU fits a vehicle.
    pub(super) fn fits(&self, sku: u64, vehicle: u64) -> bool {
        // An odd number that is no multiple of 5: times it, all remainders come once.
        let factor = 10 * (sku % 97) + [1, 3, 7, 9][(sku % 4) as usize];
        let share = if sku.is_multiple_of(2) { 1 } else { self.many };
        (vehicle * factor + sku * 331) % CYCLE < share
    }

    /// A file of vehicles.
    pub(super) fn vehicles_csv(&self) -> String {
        let mut text = String::from("vehicle,make,model,year,engine\n");
        for index in 0..self.vehicles {
            let (make, year) = (index % 40, 1990 + index % 35);
            let id = Self::vehicle(index);
            // Writing to a text does not fail.
            let _ = writeln!(text, "{id},Make {make},Model {},{year},", index / 400);
        }
        text
    }

    /// A file of products.
    pub(super) fn products_csv(&self) -> String {
        let mut text = String::from("sku,spu,type,merchant\n");
        for index in 0..self.skus {
            let (sku, spu) = (Self::sku(index), Self::spu(index));
            let kind = TYPES[(spu % 5) as usize];
            let _ = writeln!(text, "{sku},P{spu},{kind},m{}", spu % 50);
        }
        text
    }

    /// A file of what some SKUs fit.
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
    fn a_catalogue_has_as_many_relations_as_it_says() {
        let catalogue = Catalogue::new(2_000, 20, 500);
        let count = |sku| (0..2_000).filter(|v| catalogue.fits(sku, *v)).count() as u64;
        let all: u64 = (0..20).map(count).sum();
        assert_eq!(all, catalogue.relations());
        let usual = Catalogue::new(100_000, 20_000, 50_000_000);
        assert_eq!(usual.relations(), 50_000_000);
    }

    #[test]
    fn no_two_vehicles_share_an_id_of_seven_digits() {
        let ids: BTreeSet<String> = (0..200_000).map(Catalogue::vehicle).collect();
        assert_eq!(ids.len(), 200_000);
        assert!(ids.iter().all(|id| id.len() == 7));
    }

    #[test]
    fn a_file_says_what_the_catalogue_says() {
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
