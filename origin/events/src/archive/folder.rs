//! Where files go: a folder of this machine, or a bucket of S3.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, RetryConfig};

/// What begins the name of a bucket.
const S3: &str = "s3://";

/// For how long S3's client tries.
const RETRY_LIMIT: Duration = Duration::from_secs(30);

/// What S3's client tries again by itself; what it gives up, the group tries again.
const RETRIES: usize = 2;

/// A file could not be written, or there is no such place.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The bucket has no name.
    #[error("not s3://BUCKET or s3://BUCKET/PREFIX")]
    Bucket,
    /// The folder cannot be made.
    #[error("cannot create the folder: {0}")]
    Folder(#[from] std::io::Error),
    /// The store refuses, or does not answer.
    #[error("archive: {0}")]
    Store(#[from] object_store::Error),
    /// The file could not be made.
    #[error("archive file: {0}")]
    File(#[from] parquet::errors::ParquetError),
}

/// Where files go. Cloning it is cheap.
#[derive(Clone)]
pub struct Folder(Arc<dyn ObjectStore>);

/// Without credentials.
impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Folder({})", self.0)
    }
}

impl Folder {
    /// The folder at this path, which is made if it is not there, or `s3://BUCKET/PREFIX`. What else S3 needs is in the
    /// environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP`.
    ///
    /// # Errors
    /// When the folder cannot be made, or there is no such bucket's name. S3 itself is not asked.
    pub fn open(place: &str) -> Result<Self, ArchiveError> {
        match place.strip_prefix(S3) {
            Some(bucket) => in_s3(bucket),
            None => {
                std::fs::create_dir_all(place)?;
                // The log forgets what is here, so it must be on the disk.
                let folder = LocalFileSystem::new_with_prefix(place)?.with_fsync(true);
                Ok(Self(Arc::new(folder)))
            }
        }
    }

    /// Writes a file, in the place of one that is there. A reader sees all of it or nothing.
    ///
    /// # Errors
    /// When it is not known to be there: write it again.
    pub async fn put(&self, path: &str, bytes: Vec<u8>) -> Result<(), ArchiveError> {
        let path = Path::parse(path).map_err(object_store::Error::from)?;
        self.0.put(&path, PutPayload::from(bytes)).await?;
        Ok(())
    }

    /// The files in this folder and in the folders in it, in the order of their names; none if there is no such folder.
    ///
    /// # Errors
    /// When the store does not answer.
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
    // Its TLS takes the process' cryptography. Somebody may have said before which that is.
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
