/** Cells that open experiments or use templates, as a user would type them. */
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { CommandRegistry } from '@lumino/commands';
import type { PartialJSONObject } from '@lumino/coreutils';

import type { ITrans } from '../../model/trans.js';

const LOADS = '%load_ext det_jupyter';

export interface ICell extends PartialJSONObject {
  cell_type: 'code';
  source: string;
}

/** The line that shows an experiment, or several side by side. */
export function lineFor(experimentIds: readonly number[]): string {
  const verb = experimentIds.length === 1 ? 'show' : 'compare';
  return `%det_experiment ${verb} ${experimentIds.join(' ')}`;
}

/** The cell that submits an experiment with a template. */
export function templateCell(name: string, newCell: string): string {
  return `%%det_experiment --template ${name}\n${newCell.trimEnd()}`;
}

/** The cell that runs an experiment again, with what is written into it. */
export function forkCell({ id, name }: { id: number; name: string }, trans: ITrans): string {
  const hint = trans.__('what else is different, such as: hyperparameters: {lr: 0.01}');
  return `%%det_experiment fork ${id}\nname: ${JSON.stringify(name)}\n# ${hint}\n`;
}

function cellOf(source: string): ICell {
  return { cell_type: 'code', source, metadata: {}, outputs: [], execution_count: null };
}

/** The cells that work in a notebook: in one that does not load det_jupyter, a cell does that. */
export function cellsFor(source: string, notebook: NotebookPanel | null): ICell[] {
  const isLoaded = notebook === null || sourcesOf(notebook).some(one => one.includes(LOADS));
  return [...(isLoaded ? [] : [cellOf(LOADS)]), cellOf(source)];
}

function sourcesOf(notebook: NotebookPanel): string[] {
  return notebook.content.model?.sharedModel.cells.map(cell => cell.getSource()) ?? [];
}

/** Insert cells below the active one of the notebook in front, or of a new notebook. */
export async function insertCell(
  source: string,
  tracker: INotebookTracker,
  commands: CommandRegistry
): Promise<void> {
  const panel =
    tracker.currentWidget ?? ((await commands.execute('notebook:create-new')) as NotebookPanel);
  await panel.context.ready;
  const { content } = panel;
  const model = content.model;
  if (model === null) {
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
