/**
 * Accesses the notebook and kernel of a widget in JupyterLab and Notebook 7.
 *
 * This uses more than the documented interface of widgets, so all of it may be missing.
 */
import type { AnyModel } from '@anywidget/types';

type Slot<T> = (sender: unknown, args: T) => void;

interface ISignal<T> {
  connect(slot: Slot<T>): void;
  disconnect(slot: Slot<T>): void;
}

interface IOutput {
  data: Record<string, unknown>;
  toJSON(): object;
}

export interface IOutputs {
  length: number;
  get(index: number): IOutput;
  set(index: number, output: object): void;
}

export interface ICell {
  outputs?: IOutputs;
  sharedModel?: { getSource(): string; setSource(source: string): void };
}

interface INotebook {
  cells: Iterable<ICell>;
}

interface ISession {
  statusChanged: ISignal<string>;
  kernelChanged: ISignal<unknown>;
  connectionStatusChanged: ISignal<string>;
}

interface IContext {
  model: INotebook;
  ready: Promise<void>;
  sessionContext: ISession;
}

interface ILiveModel {
  comm_live?: boolean;
}

interface IManager {
  context?: IContext;
  get_model?(id: string): Promise<ILiveModel>;
}

type Model = AnyModel<Record<string, unknown>>;

/** Kernel statuses after which a model is dead. */
const ENDS = ['restarting', 'autorestarting', 'terminating', 'dead'];

function managerOf(model: Model): IManager {
  return (model.widget_manager as unknown as IManager | undefined) ?? {};
}

/** Whether the front end loads widgets without an output, as JupyterLab and Notebook 7 do. */
export function hasPlaces(model: Model): boolean {
  return managerOf(model).context !== undefined;
}

/**
 * Call `onChange` with whether the model's kernel can be reached: soon, and on each change.
 * Returns what ends that.
 */
export function watchLink(model: Model, onChange: (isUp: boolean) => void): () => void {
  const manager = managerOf(model);
  const { context } = manager;
  const session = context?.sessionContext;
  let isOver = false;
  let isConnected = true;
  let told: boolean | undefined;
  const tell = (): void => {
    const isUp = !isOver && isConnected;
    if (isUp !== told) {
      told = isUp;
      onChange(isUp);
    }
  };
  const end = (): void => {
    isOver = true;
    tell();
  };
  const onStatus: Slot<string> = (_, status) => {
    if (ENDS.includes(status)) {
      end();
    }
  };
  const onConnection: Slot<string> = (_, status) => {
    isConnected = status === 'connected';
    tell();
  };
  const check = async (): Promise<void> => {
    const real = await manager.get_model?.(String(model.get('own_id')));
    isOver ||= real?.comm_live === false; // such as a model that was saved with the notebook
    tell();
  };
  const onComm = (): void => void check();
  session?.statusChanged.connect(onStatus);
  session?.kernelChanged.connect(end);
  session?.connectionStatusChanged.connect(onConnection);
  model.on('comm_live_update', onComm);
  model.on('comm:close', end);
  onComm();
  return () => {
    session?.statusChanged.disconnect(onStatus);
    session?.kernelChanged.disconnect(end);
    session?.connectionStatusChanged.disconnect(onConnection);
    model.off('comm_live_update', onComm);
    model.off('comm:close', end);
    end();
  };
}

/**
 * Put a newer picture into all outputs of the open notebook that show the experiment, to be saved
 * with it. The kernel does so too, but the page has its display ids only until a reload.
 */
export async function keepPicture(model: Model): Promise<void> {
  const { context } = managerOf(model);
  await context?.ready;
  const kept = model.get('kept') as Record<string, unknown> | undefined;
  if (kept?.['text/html'] === undefined) {
    return;
  }
  for (const { outputs } of context?.model.cells ?? []) {
    if (outputs !== undefined) {
      putPicture(outputs, String(model.get('key')), kept);
    }
  }
}

/** Replace the source of the cells that have it in the notebook of a widget, as below. */
export function replaceCell(model: Model, before: string, after: string): boolean {
  return replaceSource([...(managerOf(model).context?.model.cells ?? [])], before, after);
}

/** Replace the source of the cells that have it; returns whether there is one. */
export function replaceSource(cells: ICell[], before: string, after: string): boolean {
  const found = cells.filter(cell => cell.sharedModel?.getSource().trimEnd() === before.trimEnd());
  for (const cell of found) {
    cell.sharedModel?.setSource(after.trimEnd());
  }
  return found.length > 0;
}

/** Replace the picture of an experiment, by MIME type, in the outputs of a cell. */
export function putPicture(outputs: IOutputs, key: string, kept: Record<string, unknown>): void {
  for (let i = 0; i < outputs.length; i++) {
    const output = outputs.get(i);
    const saved = keptIn(output.data, key);
    if (saved !== undefined && saved !== kept['text/html']) {
      outputs.set(i, { ...output.toJSON(), data: kept });
    }
  }
}

/** The stored data of an experiment in an output, if the output shows it. */
export function keptIn(data: Record<string, unknown>, key: string): string | undefined {
  const html = data['text/html'];
  return typeof html === 'string' && html.startsWith(`<det-experiment key="${key}"`)
    ? html
    : undefined;
}
