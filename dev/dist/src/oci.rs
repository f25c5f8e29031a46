//! The filters as OCI images, in a folder from which `oras`, `skopeo` and `crane` push.
//!
//! The folder contains each filter in the two layouts that Istio and Envoy Gateway read:
//!
//! | tag | layers |
//! |---|---|
//! | `<filter>-<version>` | one, a tar with `plugin.wasm`: an ordinary image (Istio's *compat*) |
//! | `<filter>-<version>-artifact` | two, `application/vnd.module.wasm.config.v1+json` and the module itself (Istio's *oci*) |

use std::collections::HashMap;
use std::io::{Read, Write};
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use oci_spec::image::{
    Arch, Descriptor, ImageConfiguration, ImageConfigurationBuilder, ImageIndex, ImageManifest,
    ImageManifestBuilder, MediaType, OciLayoutBuilder, Os, RootFsBuilder, SCHEMA_VERSION,
    Sha256Digest,
};

use crate::binaries::Filter;
use crate::folder::{Folder, sha256_hex};

const INDEX: &str = "oci/index.json";
const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The file name that readers of both layouts expect.
const PLUGIN: &str = "plugin.wasm";
const WASM_CONFIG: &str = "application/vnd.module.wasm.config.v1+json";
const WASM_CONTENT: &str = "application/vnd.module.wasm.content.layer.v1+wasm";
/// The artifact's empty configuration.
const NO_CONFIG: &[u8] = b"{}";

/// Adds both images of a filter.
///
/// # Errors
/// The images cannot be written.
pub fn add(folder: &Folder, filter: &Filter) -> Result<()> {
    let version = weir_version::VERSION;
    let image = image(folder, filter)?;
    let artifact = artifact(folder, filter)?;
    refer(folder, &image, &format!("{}-{version}", filter.name))?;
    refer(
        folder,
        &artifact,
        &format!("{}-{version}-artifact", filter.name),
    )
}

/// An image with one layer, a tar with the module.
fn image(folder: &Folder, filter: &Filter) -> Result<ImageManifest> {
    let tar = tar_of(&filter.bytes)?;
    let layer = blob(folder, MediaType::ImageLayerGzip, &zip(&tar)?)?;
    let unzipped = format!("sha256:{}", sha256_hex(&tar));
    let root = RootFsBuilder::default()
        .typ("layers")
        .diff_ids(vec![unzipped]);
    let config = ImageConfigurationBuilder::default()
        .architecture(Arch::Wasm)
        .os(Os::Other("wasip1".to_owned()))
        .rootfs(root.build()?)
        .build()?;
    let config = blob(
        folder,
        MediaType::ImageConfig,
        config.to_string()?.as_bytes(),
    )?;
    manifest(filter, config, vec![layer])
}

/// The module as a layer of its own.
fn artifact(folder: &Folder, filter: &Filter) -> Result<ImageManifest> {
    let config = || MediaType::Other(WASM_CONFIG.to_owned());
    let content = MediaType::Other(WASM_CONTENT.to_owned());
    let layers = vec![
        blob(folder, config(), NO_CONFIG)?,
        blob(folder, content, &filter.bytes)?,
    ];
    manifest(filter, blob(folder, config(), NO_CONFIG)?, layers)
}

fn manifest(filter: &Filter, config: Descriptor, layers: Vec<Descriptor>) -> Result<ImageManifest> {
    let annotation =
        |name: &str, value: &str| (format!("org.opencontainers.image.{name}"), value.to_owned());
    let annotations = HashMap::from([
        annotation("title", &filter.name),
        annotation("version", weir_version::VERSION),
        annotation("licenses", "Apache-2.0"),
    ]);
    let manifest = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .config(config)
        .layers(layers)
        .annotations(annotations);
    Ok(manifest.build()?)
}

/// Adds an image to the folder's index.
fn refer(folder: &Folder, manifest: &ImageManifest, name: &str) -> Result<()> {
    let json = canonical(&serde_json::to_value(manifest)?)?;
    let mut descriptor = blob(folder, MediaType::ImageManifest, &json)?;
    let annotations = HashMap::from([(REF_NAME.to_owned(), name.to_owned())]);
    descriptor.set_annotations(Some(annotations));
    let mut index = read_index(folder)?;
    let mut manifests = index.manifests().clone();
    manifests.push(descriptor);
    index.set_manifests(manifests);
    folder.write(INDEX, &canonical(&serde_json::to_value(&index)?)?)?;
    let layout = OciLayoutBuilder::default().image_layout_version("1.0.0");
    folder.write(
        "oci/oci-layout",
        serde_json::to_string(&layout.build()?)?.as_bytes(),
    )
}

fn read_index(folder: &Folder) -> Result<ImageIndex> {
    let path = folder.at(INDEX);
    match path.exists() {
        true => Ok(ImageIndex::from_file(path)?),
        false => {
            let mut index = ImageIndex::default();
            index.set_schema_version(SCHEMA_VERSION);
            index.set_media_type(Some(MediaType::ImageIndex));
            Ok(index)
        }
    }
}

/// Serializes through a JSON value, which sorts keys. Annotations are unordered maps, and two builds must have
/// identical bytes.
fn canonical(value: &serde_json::Value) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(value)?)
}

fn blob(folder: &Folder, media_type: MediaType, bytes: &[u8]) -> Result<Descriptor> {
    let digest = sha256_hex(bytes);
    folder.write(&format!("oci/blobs/sha256/{digest}"), bytes)?;
    let digest = Sha256Digest::from_str(&digest)?;
    Ok(Descriptor::new(media_type, bytes.len() as u64, digest))
}

/// A tar with only the module, without owner and time.
fn tar_of(module: &[u8]) -> Result<Vec<u8>> {
    let mut header = tar::Header::new_ustar();
    header.set_size(module.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(0);
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_data(&mut header, PLUGIN, module)?;
    Ok(tar.into_inner()?)
}

fn zip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut zip = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::default());
    zip.write_all(bytes)?;
    Ok(zip.finish()?)
}

/// Reads every image as Istio's agent and Envoy Gateway do, and compares it with its filter.
pub fn check(folder: &Folder) -> Result<()> {
    let index = read_index(folder)?;
    ensure!(!index.manifests().is_empty(), "no images");
    for descriptor in index.manifests() {
        let annotations = descriptor.annotations().as_ref();
        let name = annotations.and_then(|annotations| annotations.get(REF_NAME));
        let name = name.context("image without a name")?;
        let manifest = ImageManifest::from_reader(&read(folder, descriptor)?[..])?;
        let module = match name.ends_with("-artifact") {
            true => artifact_module(folder, &manifest),
            false => image_module(folder, &manifest),
        };
        let module = module.with_context(|| format!("the image {name}"))?;
        let filter = name.trim_end_matches("-artifact");
        let filter = filter.trim_end_matches(&format!("-{}", weir_version::VERSION));
        let shipped = std::fs::read(folder.at(&format!("filters/{filter}.wasm")))?;
        ensure!(
            module == shipped,
            "the image {name} contains a different module than filters/{filter}.wasm"
        );
    }
    Ok(())
}

/// The module in an ordinary image: in the tar of its only layer, which is compressed.
fn image_module(folder: &Folder, manifest: &ImageManifest) -> Result<Vec<u8>> {
    let config = ImageConfiguration::from_reader(&read(folder, manifest.config())?[..])?;
    let [layer] = manifest.layers().as_slice() else {
        anyhow::bail!("has {} layers, must have one", manifest.layers().len());
    };
    ensure!(
        *layer.media_type() == MediaType::ImageLayerGzip,
        "its layer is not a gzipped tar"
    );
    let mut tar = Vec::new();
    GzDecoder::new(&read(folder, layer)?[..]).read_to_end(&mut tar)?;
    let unzipped = format!("sha256:{}", sha256_hex(&tar));
    ensure!(
        config.rootfs().diff_ids() == &[unzipped],
        "its layer does not match its configuration"
    );
    for entry in tar::Archive::new(&tar[..]).entries()? {
        let mut entry = entry?;
        if entry.path()?.as_os_str() == PLUGIN {
            let mut module = Vec::new();
            entry.read_to_end(&mut module)?;
            return Ok(module);
        }
    }
    anyhow::bail!("has no {PLUGIN}")
}

/// The module in an artifact: the layer of its media type, out of two.
fn artifact_module(folder: &Folder, manifest: &ImageManifest) -> Result<Vec<u8>> {
    let layers = manifest.layers();
    ensure!(
        layers.len() == 2,
        "has {} layers, must have two",
        layers.len()
    );
    let is_content = |layer: &&Descriptor| layer.media_type().to_string() == WASM_CONTENT;
    let layer = layers
        .iter()
        .find(is_content)
        .context("has no module layer")?;
    read(folder, layer)
}

/// Reads a blob, and verifies it against its descriptor.
fn read(folder: &Folder, descriptor: &Descriptor) -> Result<Vec<u8>> {
    let digest = descriptor
        .as_digest_sha256()
        .context("unsupported digest type")?;
    let bytes = std::fs::read(folder.at(&format!("oci/blobs/sha256/{digest}")))?;
    let is_right = sha256_hex(&bytes) == digest && bytes.len() as u64 == descriptor.size();
    ensure!(is_right, "the blob {digest} is corrupt");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(temp: &tempfile::TempDir) -> Folder {
        let folder = Folder::empty(&temp.path().join("dist")).unwrap();
        for name in ["one", "two-parts"] {
            let filter = Filter {
                name: name.to_owned(),
                bytes: [b"\0asm", name.as_bytes()].concat(),
            };
            folder
                .write(&format!("filters/{name}.wasm"), &filter.bytes)
                .unwrap();
            add(&folder, &filter).unwrap();
        }
        folder
    }

    #[test]
    fn images_contain_the_filters_and_two_builds_are_identical() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, other) = (filled(&one), filled(&other));
        check(&one).unwrap();
        let index = |folder: &Folder| std::fs::read(folder.at(INDEX)).unwrap();
        assert_eq!(index(&one), index(&other));
        assert_eq!(read_index(&one).unwrap().manifests().len(), 4);
    }

    #[test]
    fn image_of_another_module_is_detected() {
        let temp = tempfile::tempdir().unwrap();
        let folder = filled(&temp);
        folder.write("filters/one.wasm", b"\0asm other").unwrap();
        let error = check(&folder).unwrap_err().to_string();
        assert!(error.contains("contains a different module"), "{error}");
    }
}
