// A server that gives scripted answers, to produce what a real gateway cannot be made to do: lost answers, old tokens.
import { createServer } from 'node:http';

/** `script` gets each request and returns `[status, body, headers]`, or null to drop the connection. */
export async function serve(script) {
  const requests = [];
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', part => body += part).on('end', () => {
      const { method, url, headers } = request, seen = { method, url, headers, body, atMs: Date.now() };
      requests.push(seen);
      const answer = script(seen, requests.length);
      if (!answer) return request.socket.destroy();
      const [status, json, more] = answer;
      response.writeHead(status, { 'content-type': 'application/json', ...more });
      response.end(json === undefined ? undefined : JSON.stringify(json));
    });
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`, requests,
    stop: () => new Promise(resolve => (server.close(resolve), server.closeAllConnections())),
  };
}

export const problem = (status, error, more = {}, headers = {}) =>
  [status, { type: `urn:weir:problem:${error}`, status, error, message: error, ...more }, headers];
