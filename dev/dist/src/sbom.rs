//! The bill of materials of a release in CycloneDX 1.5: the crates that are compiled into its binaries.

use anyhow::{Result, ensure};
use cyclonedx_bom::models::component::{Classification, Component, Components};
use cyclonedx_bom::models::dependency::{Dependencies, Dependency};
use cyclonedx_bom::models::license::{LicenseChoice, Licenses};
use cyclonedx_bom::prelude::*;

use crate::metadata::{Metadata, Package};

/// Creates the bill of materials as JSON.
///
/// # Errors
/// The bill is invalid.
pub fn make(metadata: &Metadata) -> Result<String> {
    let edges = metadata.shipped_edges();
    let packages = metadata.packages.iter();
    let packages = packages.filter(|package| edges.contains_key(package.id.as_str()));
    let components = packages
        .map(|package| component(metadata, package))
        .collect();
    let dependencies = edges.iter().map(|(id, needs)| Dependency {
        dependency_ref: reference(metadata, id),
        dependencies: needs.iter().map(|id| reference(metadata, id)).collect(),
    });
    let bom = Bom {
        components: Some(Components(components)),
        dependencies: Some(Dependencies(dependencies.collect())),
        // A random number would make builds differ.
        serial_number: None,
        ..Bom::default()
    };
    let validated = bom.validate_version(SpecVersion::V1_5);
    ensure!(
        validated.passed(),
        "the bill of materials is invalid: {validated:?}"
    );
    let mut json = Vec::new();
    bom.output_as_json_v1_5(&mut json)?;
    Ok(String::from_utf8(json)?)
}

fn component(metadata: &Metadata, package: &Package) -> Component {
    let reference = reference_of(package);
    let kind = match metadata.is_shipped(package) {
        true => Classification::Application,
        false => Classification::Library,
    };
    let mut component = Component::new(kind, &package.name, &package.version, Some(reference));
    component.purl = Purl::new("cargo", &package.name, &package.version).ok();
    let license = package
        .license
        .as_deref()
        .map(|license| license.replace('/', " OR "));
    let license = license.and_then(|text| SpdxExpression::try_from(text).ok());
    component.licenses = license.map(|license| Licenses(vec![LicenseChoice::Expression(license)]));
    component
}

fn reference(metadata: &Metadata, id: &str) -> String {
    metadata
        .package(id)
        .map_or_else(|| id.to_owned(), reference_of)
}

/// A reference without the builder's folders, which cargo's own ID contains.
fn reference_of(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::tests::METADATA;

    #[test]
    fn compiled_crates_are_listed_with_license_and_tests_are_not() {
        let metadata = serde_json::from_str(METADATA).unwrap();
        let json = make(&metadata).unwrap();
        assert_eq!(json, make(&metadata).unwrap());
        let bom: serde_json::Value = serde_json::from_str(&json).unwrap();
        let names: Vec<_> = bom["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["weir-origin", "used"]);
        assert_eq!(bom["components"][1]["purl"], "pkg:cargo/used@1.2.3");
        assert_eq!(
            bom["components"][1]["licenses"][0]["expression"],
            "MIT OR Apache-2.0"
        );
        assert_eq!(bom["bomFormat"], "CycloneDX");
        assert!(
            !json.contains("only-tests") && !json.contains("/w/origin"),
            "{json}"
        );
    }
}
