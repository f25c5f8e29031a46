//! Java, and servers distributed as jars on Maven Central. Only tests need them.

use super::cache;
use crate::report::Reporter;
use crate::{command, workspace};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// For 70 MB on a slow line.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(600);

/// The Maven plugin that copies the jars, also pinned.
const PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies";

const ADVICE: &str = "(Debian: apt-get install openjdk-17-jre-headless maven)";

/// A Java that responded to `-version`.
struct Java {
    path: PathBuf,
    /// The major version, such as 17.
    major: u32,
}

impl Java {
    /// Finds Java in `JAVA_HOME`, else on `PATH`.
    fn find() -> Result<Self> {
        let home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
        let path = home
            .filter(|path| command::is_executable(path))
            .or_else(|| command::on_path("java"))
            .with_context(|| format!("java is not on PATH {ADVICE}"))?;
        let response = version(&path)?;
        let major = major_in(&response)
            .with_context(|| format!("{} -version says {response:?}", path.display()))?;
        Ok(Self { path, major })
    }
}

/// The version is printed to standard error.
fn version(path: &Path) -> Result<String> {
    let key = format!("java version of {}", cache::identity(path));
    cache::remember(&key, || {
        let limit = Duration::from_secs(30);
        let finished = command::run(Command::new(path).arg("-version"), limit)?;
        Ok(finished.stderr)
    })
}

/// Parses `openjdk version "17.0.15" 2025-04-15`, and `"1.8.0_392"` of Java 8.
fn major_in(response: &str) -> Option<u32> {
    let quoted = response.split('"').nth(1)?;
    let major = quoted.split(['.', '-']).next()?;
    major.parse().ok()
}

/// A server distributed as jars.
pub(super) struct Server {
    /// The name of the server and its folder.
    pub name: &'static str,
    /// The version of the server and its folder.
    pub version: &'static str,
    /// Group, ID and version of the artifacts that Maven downloads, including dependencies.
    pub artifacts: &'static [[&'static str; 3]],
    /// The supported Java versions.
    pub java: std::ops::RangeInclusive<u32>,
}

/// A Java and a folder of jars.
#[derive(Debug, Clone)]
pub(crate) struct Jars {
    java: PathBuf,
    dir: PathBuf,
}

impl Jars {
    /// A command that runs the class `main` with these JVM flags. It uses little memory and fast compilation, because
    /// it runs for one test, in parallel with others.
    pub(crate) fn command(&self, flags: &[&str], main: &str) -> Command {
        let mut command = Command::new(&self.java);
        command
            .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args(flags)
            .arg("-cp")
            .arg(self.dir.join("*"))
            .arg(main);
        command
    }
}

impl Server {
    /// Finds Java, and downloads the jars if missing.
    pub(super) fn find_or_get(&self, reporter: &mut dyn Reporter) -> Result<Jars> {
        let _lock = super::lock()?;
        let (name, range) = (self.name, &self.java);
        let java = Java::find().with_context(|| format!("{name} needs Java"))?;
        ensure!(
            range.contains(&java.major),
            "{name} needs Java {} to {}, and {} is Java {} {ADVICE}",
            range.start(),
            range.end(),
            java.path.display(),
            java.major
        );
        let dir = workspace::out_dir().join(format!("tools/{name}-{}", self.version));
        // The folder is created atomically. Different jars have a different pom.
        let pom = self.pom();
        let is_there =
            std::fs::read_to_string(dir.join("pom.xml")).is_ok_and(|before| before == pom);
        if !is_there {
            self.fetch(&pom, &dir, reporter)?;
        }
        let java = java.path;
        reporter.line(name, &format!("{} by {}", self.version, java.display()));
        Ok(Jars {
            java,
            dir: dir.join("jars"),
        })
    }

    fn fetch(&self, pom: &str, dir: &Path, reporter: &mut dyn Reporter) -> Result<()> {
        let (name, version) = (self.name, self.version);
        let maven = command::on_path("mvn").with_context(|| {
            format!("{name} is downloaded with Maven, but mvn is not on PATH {ADVICE}")
        })?;
        reporter.line(name, &format!("downloading {version} from Maven Central…"));
        let tools = workspace::out_dir().join("tools");
        std::fs::create_dir_all(&tools)?;
        let temp = tempfile::tempdir_in(&tools).context("cannot create a folder for jars")?;
        let new = temp.path().join("new");
        std::fs::create_dir(&new)?;
        std::fs::write(new.join("pom.xml"), pom)?;
        let mut copy = Command::new(maven);
        copy.args(["--batch-mode", "--quiet", "--strict-checksums", PLUGIN])
            .args(["-DincludeScope=runtime", "-DoutputDirectory=jars"])
            .current_dir(&new);
        command::succeed(&mut copy, DOWNLOAD_LIMIT)
            .with_context(|| format!("Maven could not download {name} {version}"))?;
        // From an earlier pom.
        std::fs::remove_dir_all(dir).ok();
        std::fs::rename(&new, dir).with_context(|| format!("cannot make {}", dir.display()))
    }

    fn pom(&self) -> String {
        let dependency = |[group, id, version]: &[&str; 3]| {
            format!(
                "<dependency><groupId>{group}</groupId><artifactId>{id}</artifactId>\
                 <version>{version}</version></dependency>\n"
            )
        };
        let dependencies: String = self.artifacts.iter().map(dependency).collect();
        format!(
            "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n\
             <modelVersion>4.0.0</modelVersion>\n\
             <groupId>weir</groupId><artifactId>{}</artifactId><version>1</version>\n\
             <packaging>pom</packaging>\n\
             <dependencies>\n{dependencies}</dependencies>\n\
             </project>\n",
            self.name
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_version_is_parsed() {
        let message = "openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment";
        assert_eq!(major_in(message), Some(17));
        assert_eq!(major_in("java version \"1.8.0_392\""), Some(1));
        assert_eq!(major_in("openjdk version \"25-ea\" 2025-09-16"), Some(25));
        assert_eq!(major_in("no such thing"), None);
    }
}
