// `MINIFLARE_OPTIONS=<JSON> node run.mjs`: Miniflare with these options, until it is told to end.
import { Miniflare } from "miniflare";

const server = new Miniflare(JSON.parse(process.env.MINIFLARE_OPTIONS));
process.on("SIGTERM", async () => {
  await server.dispose();
  process.exit(0);
});
await server.ready;
