/** The notebooks that are open: what their outputs show, and the cells in them. */
import type { INotebookTracker } from '@jupyterlab/notebook';

import { keptIn, replaceSource, type ICell, type IOutputs } from '../../host.js';

/** The part of the notebook tracker that is used. */
export interface INotebooks {
  forEach(each: (panel: INotebookPanel) => void): void;
}

interface INotebookPanel {
  content: { model: { cells: Iterable<unknown> } | null };
}

export class OpenNotebooks {
  constructor(private readonly _tracker: INotebookTracker | INotebooks | null) {}

  /** The outputs of all notebooks. */
  outputs(): IOutputs[] {
    return this._all().flatMap(outputsOf);
  }

  /**
   * Replace the source of the cells that have it, in the notebooks that show an experiment; returns
   * whether there is such a cell.
   */
  replaceCell(key: string, before: string, after: string): boolean {
    const showing = this._all().filter(cells => outputsOf(cells).some(one => shows(one, key)));
    return showing.filter(cells => replaceSource(cells, before, after)).length > 0;
  }

  private _all(): ICell[][] {
    const found: ICell[][] = [];
    this._tracker?.forEach((panel: INotebookPanel) => {
      found.push([...((panel.content.model?.cells ?? []) as Iterable<ICell>)]);
    });
    return found;
  }
}

function outputsOf(cells: ICell[]): IOutputs[] {
  return cells.flatMap(cell => cell.outputs ?? []);
}

function shows(outputs: IOutputs, key: string): boolean {
  for (let i = 0; i < outputs.length; i++) {
    if (keptIn(outputs.get(i).data, key) !== undefined) {
      return true;
    }
  }
  return false;
}
