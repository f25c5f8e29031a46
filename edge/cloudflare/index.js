// Glue code: the module makes all decisions.
import { initSync, fetch as serve, Feed, Limits, ShardObject } from "./weir_edge.js";
import module from "./weir_edge_bg.wasm";

initSync({ module });

export default { fetch: (request, env, context) => serve(request, env, context) };
export { Feed, Limits, ShardObject };
