let app = document.getElementById("app");
let web = document.getElementById("web");
let timer = setTimeout(() => { if (!document.hidden) location.replace(web.href); }, 1500);
document.addEventListener("visibilitychange", () => { if (document.hidden) clearTimeout(timer); });
location.href = app.href;
