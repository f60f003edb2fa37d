/**
 * An extension of JupyterLite that stands in for the server: recorded.mjs bundles it as a script,
 * which is loaded before JupyterLab's own code, and takes over `fetch`, `WebSocket` and the clock.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';

import type { IRecording } from './recording.js';
import { Player, RecordedSocket, respond } from './server.js';

/** A container of module federation, as JupyterLab's loader uses it. */
interface IContainer {
  init(): Promise<void>;
  get(): Promise<() => object>;
}

const NAME = 'det-recorded';
const WORDS =
  'Recorded, and played twice as fast: nothing can be changed. Reload the page to play it again.';
const HERE = (document.currentScript as HTMLScriptElement).src; // extensions/NAME/static/…
const ROOT = new URL('../../../det-jupyter/', HERE).pathname;

async function fetchRecording(): Promise<IRecording> {
  const response = await fetch(new URL('recording.json', HERE));
  return (await response.json()) as IRecording;
}

/** The path of an address below `det-jupyter/`; null for other addresses. */
function pathOf(address: string): string | null {
  const { pathname } = new URL(address, location.href);
  return pathname.startsWith(ROOT) ? pathname.slice(ROOT.length) : null;
}

function standIn(player: Player): void {
  const { fetch } = window;
  window.fetch = (input, init) => {
    const { url, method } =
      input instanceof Request ? input : { url: String(input), method: init?.method ?? 'GET' };
    const path = pathOf(url);
    return path === null ? fetch(input, init) : Promise.resolve(respond(method, path));
  };
  window.WebSocket = new Proxy(WebSocket, {
    construct: (real, args: [string]) =>
      pathOf(args[0]) === null ? new real(...args) : new RecordedSocket(player)
  });
  Date.now = () => player.now(); // durations are those of then
}

const opening: JupyterFrontEndPlugin<void> = {
  id: 'det-jupyter:recorded',
  description: 'Opens the sidebar and a recorded experiment, and says that it is recorded.',
  autoStart: true,
  activate: (app: JupyterFrontEnd) => {
    void app.restored.then(async () => {
      await app.commands.execute('det:show-sidebar');
      const { opened } = await recording;
      await app.commands.execute('det:open-experiment', { experiment_id: opened });
      const options = { autoClose: false };
      await app.commands.execute('apputils:notify', { message: WORDS, type: 'info', options });
    });
  }
};

const recording = fetchRecording();
const { _JUPYTERLAB } = window as unknown as { _JUPYTERLAB: Record<string, IContainer> };
_JUPYTERLAB[NAME] = {
  init: async () => standIn(new Player(await recording)),
  get: () => Promise.resolve(() => ({ __esModule: true, default: opening }))
};
