// The language server of taplo on standard input and output. It needs `npm install @taplo/lsp`.
const fs = require("node:fs");
const { fileURLToPath } = require("node:url");
const { TaploLsp } = require("@taplo/lsp");

const environment = {
  now: () => new Date(),
  envVar: (name) => process.env[name],
  envVars: () => Object.entries(process.env),
  stdErrAtty: () => false,
  stdin: async () => new Uint8Array(), // the messages are ours to read
  stdout: async (bytes) => bytes.length,
  stderr: async (bytes) => bytes.length,
  glob: () => [],
  readFile: (path) => fs.promises.readFile(path),
  writeFile: (path, bytes) => fs.promises.writeFile(path, bytes),
  urlToFilePath: (url) => (url.startsWith("file:") ? fileURLToPath(url) : ""),
  isAbsolute: (path) => path.startsWith("/"),
  cwd: () => process.cwd(),
  findConfigFile: () => undefined,
  fetch: { fetch, Headers, Request, Response },
};

function send(message) {
  const content = Buffer.from(JSON.stringify(message));
  process.stdout.write(`Content-Length: ${content.length}\r\n\r\n`);
  process.stdout.write(content);
}

async function serve() {
  const server = await TaploLsp.initialize(environment, { onMessage: send });
  let read = Buffer.alloc(0);
  process.stdin.on("data", (piece) => {
    read = Buffer.concat([read, piece]);
    for (;;) {
      const end = read.indexOf("\r\n\r\n");
      if (end < 0) return;
      const length = Number(/Content-Length: (\d+)/.exec(read.subarray(0, end).toString())[1]);
      if (read.length < end + 4 + length) return;
      server.send(JSON.parse(read.subarray(end + 4, end + 4 + length)));
      read = read.subarray(end + 4 + length);
    }
  });
  process.stdin.on("end", () => process.exit(0));
}

serve();
