//! The target of archive files: a local folder or an S3 bucket.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, RetryConfig};

/// URL prefix of an S3 bucket.
const S3: &str = "s3://";

/// Maximum duration of the S3 client's own retries.
const RETRY_LIMIT: Duration = Duration::from_secs(30);

/// Number of retries by the S3 client. The consumer group retries after that.
const RETRIES: usize = 2;

/// Why a file was not written, or the target cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The bucket name is missing.
    #[error("not s3://BUCKET or s3://BUCKET/PREFIX")]
    Bucket,
    /// The folder cannot be created.
    #[error("cannot create the folder: {0}")]
    Folder(#[from] std::io::Error),
    /// The object store failed or did not respond.
    #[error("archive: {0}")]
    Store(#[from] object_store::Error),
    /// The Parquet file cannot be encoded.
    #[error("archive file: {0}")]
    File(#[from] parquet::errors::ParquetError),
}

/// The target of archive files. Cloning is cheap.
#[derive(Clone)]
pub struct Folder(Arc<dyn ObjectStore>);

/// Omits the credentials.
impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Folder({})", self.0)
    }
}

impl Folder {
    /// Opens the folder at this path and creates it if it is missing, or opens `s3://BUCKET/PREFIX`. S3 reads its other
    /// settings from the environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`,
    /// `AWS_ALLOW_HTTP`.
    ///
    /// # Errors
    /// If the folder cannot be created or the bucket name is missing. It sends no request to S3.
    pub fn open(place: &str) -> Result<Self, ArchiveError> {
        match place.strip_prefix(S3) {
            Some(bucket) => in_s3(bucket),
            None => {
                std::fs::create_dir_all(place)?;
                // The log deletes archived events, so the files must be synced to disk.
                let folder = LocalFileSystem::new_with_prefix(place)?.with_fsync(true);
                Ok(Self(Arc::new(folder)))
            }
        }
    }

    /// Writes a file and replaces an existing one. The write is atomic for readers.
    ///
    /// # Errors
    /// If the file may be missing: write it again.
    pub async fn put(&self, path: &str, bytes: Vec<u8>) -> Result<(), ArchiveError> {
        let path = Path::parse(path).map_err(object_store::Error::from)?;
        self.0.put(&path, PutPayload::from(bytes)).await?;
        Ok(())
    }

    /// Lists the files under this folder, recursively and sorted by name. A missing folder has no files.
    ///
    /// # Errors
    /// If the store fails or does not respond.
    pub(super) async fn list(&self, folder: &str) -> Result<Vec<Path>, ArchiveError> {
        let mut folders = vec![Path::parse(folder).map_err(object_store::Error::from)?];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            let listed = match self.0.list_with_delimiter(Some(&folder)).await {
                Err(object_store::Error::NotFound { .. }) => continue,
                listed => listed?,
            };
            folders.extend(listed.common_prefixes);
            files.extend(listed.objects.into_iter().map(|object| object.location));
        }
        files.sort_unstable();
        Ok(files)
    }

    pub(super) async fn get(&self, path: &Path) -> Result<axum::body::Bytes, ArchiveError> {
        Ok(self.0.get(path).await?.bytes().await?)
    }
}

fn in_s3(bucket: &str) -> Result<Folder, ArchiveError> {
    let (bucket, prefix) = bucket.split_once('/').unwrap_or((bucket, ""));
    if bucket.is_empty() {
        return Err(ArchiveError::Bucket);
    }
    // The S3 client's TLS uses the process-wide crypto provider, which may already be installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retries = RetryConfig {
        max_retries: RETRIES,
        retry_timeout: RETRY_LIMIT,
        ..RetryConfig::default()
    };
    let store = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_retry(retries)
        .build()?;
    Ok(Folder(match prefix.trim_matches('/') {
        "" => Arc::new(store),
        prefix => Arc::new(PrefixStore::new(
            store,
            Path::parse(prefix).map_err(object_store::Error::from)?,
        )),
    }))
}
