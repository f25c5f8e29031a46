//! The systems that benchmarks compare Weir with: nginx with Lua, and Webdis, from Debian packages.

use super::apt::{self, Removals, RemovalsNeeded};
use crate::command;
use crate::report::Reporter;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A server of a Debian package, including its modules.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The server's binary.
    pub path: PathBuf,
    /// The package version.
    pub version: String,
}

/// How to find a server.
struct Search {
    name: &'static str,
    packages: &'static [&'static str],
    /// Files required besides the binary.
    files: &'static [&'static str],
}

const NGINX: Search = Search {
    name: "nginx",
    packages: &[
        "nginx",
        "libnginx-mod-http-lua",
        "lua-nginx-redis",
        "lua-cjson",
    ],
    // The paths in bench/peers/nginx.conf.
    files: &[
        "/usr/lib/nginx/modules/ndk_http_module.so",
        "/usr/lib/nginx/modules/ngx_http_lua_module.so",
        "/usr/share/lua/5.1/cjson/util.lua",
        "/usr/share/lua/5.1/nginx/redis.lua",
        "/usr/share/lua/5.1/resty/core.lua",
    ],
};

const NGINX_KAFKA: Search = Search {
    name: "nginx",
    packages: &[
        "nginx",
        "libnginx-mod-http-lua",
        "lua-nginx-kafka",
        "lua-cjson",
    ],
    // The paths in bench/peers/nginx-events.conf.
    files: &[
        "/usr/lib/nginx/modules/ndk_http_module.so",
        "/usr/lib/nginx/modules/ngx_http_lua_module.so",
        "/usr/share/lua/5.1/cjson/util.lua",
        "/usr/share/lua/5.1/nginx/kafka/producer.lua",
        "/usr/share/lua/5.1/resty/core.lua",
    ],
};

const WEBDIS: Search = Search {
    name: "webdis",
    packages: &["webdis"],
    files: &[],
};

impl Peer {
    /// nginx with OpenResty's Lua module and its Redis client.
    ///
    /// # Errors
    /// It is missing and cannot be installed; the error says what to do.
    pub fn nginx(removals: Removals, reporter: &mut dyn Reporter) -> Result<Self> {
        NGINX.find_or_get(removals, reporter)
    }

    /// nginx with OpenResty's Lua module and its Kafka client.
    ///
    /// # Errors
    /// As for [`Peer::nginx`].
    pub fn nginx_with_kafka(removals: Removals, reporter: &mut dyn Reporter) -> Result<Self> {
        NGINX_KAFKA.find_or_get(removals, reporter)
    }

    /// Webdis, an HTTP interface to Redis.
    ///
    /// # Errors
    /// As for [`Peer::nginx`].
    pub fn webdis(removals: Removals, reporter: &mut dyn Reporter) -> Result<Self> {
        WEBDIS.find_or_get(removals, reporter)
    }
}

impl Search {
    fn find_or_get(&self, removals: Removals, reporter: &mut dyn Reporter) -> Result<Peer> {
        let _lock = super::lock()?;
        let list = self.packages.join(" ");
        let path = match self.found() {
            Some(path) => path,
            None => {
                reporter.line(self.name, &format!("installing Debian's {list}…"));
                self.install(removals)?;
                let found = self.found();
                found.with_context(|| format!("{list}: installed, but something is missing"))?
            }
        };
        let version = self.version();
        reporter.line(self.name, &format!("{} ({version})", path.display()));
        Ok(Peer { path, version })
    }

    fn install(&self, removals: Removals) -> Result<()> {
        let (name, list) = (self.name, self.packages.join(" "));
        apt::install_stopped(self.packages, removals).map_err(|error| {
            let what_to_do = match error.is::<RemovalsNeeded>() {
                true => "to allow it, use --allow-removals, or run",
                false => "on Debian, run",
            };
            let why = format!("{error:#}; {what_to_do}: sudo apt-get install {list}");
            anyhow::Error::msg(why).context(format!("no {name}"))
        })
    }

    fn found(&self) -> Option<PathBuf> {
        // On Debian, /usr/sbin is not on a user's PATH.
        let admin = PathBuf::from("/usr/sbin").join(self.name);
        let binary = command::on_path(self.name)
            .or_else(|| Some(admin).filter(|path| command::is_executable(path)));
        binary.filter(|_| self.files.iter().all(|file| Path::new(file).exists()))
    }

    /// The package's version: Webdis cannot report its own.
    fn version(&self) -> String {
        let mut query = Command::new("dpkg-query");
        query.args(["--show", "--showformat=${Version}", self.name]);
        let version = command::succeed(&mut query, Duration::from_secs(10));
        version.unwrap_or_else(|_| "not Debian's".to_owned())
    }
}
