/** Makes and inserts cells that show experiments, use templates or define an experiment. */
import type { INotebookTracker, Notebook, NotebookPanel } from '@jupyterlab/notebook';
import type { CommandRegistry } from '@lumino/commands';
import type { PartialJSONObject } from '@lumino/coreutils';

import type { ITrans } from '../../model/trans.js';
import { configurationOf, MAGIC, nearestEntrypoint, newCellSource } from './cellkinds.js';
import type { IApi, ILabSettings } from '../tokens.js';
import type { ITemplateView } from '../../model/answers.js';
import type { IFirstConfiguration } from '../../model/answers.js';

const LOADS = '%load_ext det_jupyter';

export interface ICell extends PartialJSONObject {
  cell_type: 'code';
  source: string;
}

/** The code that shows an experiment, or compares several. */
export function lineFor(experimentIds: readonly number[]): string {
  const verb = experimentIds.length === 1 ? 'show' : 'compare';
  return `%det_experiment ${verb} ${experimentIds.join(' ')}`;
}

/**
 * The cell of a new experiment. The server adds what the entrypoint reads and reports, except what
 * the template contains.
 *
 * @param sources - The code cells above.
 */
export async function newCell(
  { api, settings }: { api: IApi; settings: ILabSettings },
  entrypoint: string | null,
  sources: readonly string[],
  template?: Pick<ITemplateView, 'name' | 'config'>
): Promise<string> {
  const configuration = configurationOf(settings.get('newCell'));
  const magic = template === undefined ? MAGIC : `${MAGIC} --template ${template.name}`;
  if (entrypoint === null && template === undefined) {
    return newCellSource(configuration, null, magic);
  }
  const asked = { configuration, entrypoint: entrypoint ?? '', sources };
  const given = template === undefined ? {} : { given: template.config };
  const written = await api
    .post<IFirstConfiguration>('cell', { ...asked, ...given })
    .catch(() => ({ configuration })); // without the server: the configuration of the settings
  return newCellSource(written.configuration, entrypoint, magic);
}

/** The cell of a new experiment of the nearest entrypoint above. */
export function newCellBelow(
  det: { api: IApi; settings: ILabSettings },
  template?: Pick<ITemplateView, 'name' | 'config'>
): (above: readonly string[]) => Promise<string> {
  return above => newCell(det, nearestEntrypoint(above), above, template);
}

/** The cell that forks an experiment, with room for changes. */
export function forkCell({ id, name }: { id: number; name: string }, trans: ITrans): string {
  const hint = trans.__('what else is different, such as: hyperparameters: {lr: 0.01}');
  return `%%det_experiment fork ${id}\nname: ${JSON.stringify(name)}\n# ${hint}\n`;
}

function cellOf(source: string): ICell {
  return { cell_type: 'code', source, metadata: {}, outputs: [], execution_count: null };
}

/** The cell, preceded by one that loads det_jupyter if the notebook does not. */
export function cellsFor(source: string, notebook: NotebookPanel | null): ICell[] {
  const isLoaded = notebook === null || sourcesOf(notebook).some(one => one.includes(LOADS));
  return [...(isLoaded ? [] : [cellOf(LOADS)]), cellOf(source)];
}

function sourcesOf(notebook: NotebookPanel): string[] {
  return notebook.content.model?.sharedModel.cells.map(cell => cell.getSource()) ?? [];
}

/** The sources of a notebook's code cells up to the cell `last`. */
export function codeUpTo(notebook: Notebook, last: number): string[] {
  return notebook.widgets
    .slice(0, last + 1)
    .filter(({ model }) => model.type === 'code')
    .map(({ model }) => model.sharedModel.getSource());
}

/**
 * Insert cells below the active one of the current notebook, or of a new one.
 *
 * @param wanted - The source, or a function of the code above.
 */
export async function insertCell(
  wanted: string | ((above: readonly string[]) => Promise<string>),
  tracker: INotebookTracker,
  commands: CommandRegistry
): Promise<void> {
  const panel =
    tracker.currentWidget ?? ((await commands.execute('notebook:create-new')) as NotebookPanel);
  await panel.context.ready;
  const { content } = panel;
  const above = codeUpTo(content, content.activeCellIndex);
  const source = typeof wanted === 'string' ? wanted : await wanted(above);
  const model = content.model;
  if (panel.isDisposed || model === null) {
    return;
  }
  const cells = cellsFor(source, panel);
  const active = content.activeCellIndex;
  const isEmpty = content.activeCell?.model.sharedModel.getSource() === '';
  const place = isEmpty ? active : active + 1;
  if (isEmpty) {
    model.sharedModel.deleteCell(active);
  }
  model.sharedModel.insertCells(place, cells);
  content.activeCellIndex = place + cells.length - 1;
  content.mode = 'edit';
  panel.activate();
}
