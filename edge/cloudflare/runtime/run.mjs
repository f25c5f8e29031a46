// `node run.mjs <options>`: Miniflare with these options, until it is told to end.
import { Miniflare } from "miniflare";

const server = new Miniflare(JSON.parse(process.argv[2]));
process.on("SIGTERM", async () => {
  await server.dispose();
  process.exit(0);
});
await server.ready;
