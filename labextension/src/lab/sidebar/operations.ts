/** The operations of the sidebar's buttons. Errors are shown as notifications. */
import { Notification } from '@jupyterlab/apputils';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import type { IRemedyButton, Verb } from '../../model/state.js';
import { Commands, type IDetJupyter } from '../tokens.js';

export interface IOperations {
  open(experimentId: number): void;
  change(experimentId: number, verb: Verb): Promise<void>;
  carryOut(experimentId: number, remedy: IRemedyButton): Promise<void>;
  editLabels(experimentIds: readonly number[]): Promise<void>;
  /** Ask for another name. */
  rename(experimentId: number): Promise<void>;
  compare(experimentIds: readonly number[]): void;
  archive(experimentIds: readonly number[], isArchived: boolean): Promise<void>;
  /** Delete ended experiments, after a confirmation. */
  remove(experimentIds: readonly number[]): Promise<void>;
}

export class Operations implements IOperations {
  constructor(
    private readonly _det: IDetJupyter,
    private readonly _commands: CommandRegistry
  ) {}

  open(experimentId: number): void {
    void this._run(Commands.openExperiment, { experiment_id: experimentId });
  }

  change(experimentId: number, verb: Verb): Promise<void> {
    return this._run(Commands.command, { experiment_id: experimentId, verb });
  }

  carryOut(experimentId: number, { id }: IRemedyButton): Promise<void> {
    return this._say(this._det.socket.ask(experimentId, 'command', { command: id }));
  }

  editLabels(experimentIds: readonly number[]): Promise<void> {
    return this._run(Commands.labelExperiment, { experiment_ids: [...experimentIds] });
  }

  rename(experimentId: number): Promise<void> {
    return this._run(Commands.renameExperiment, { experiment_id: experimentId });
  }

  compare(experimentIds: readonly number[]): void {
    void this._run(Commands.compare, { experiment_ids: [...experimentIds] });
  }

  archive(experimentIds: readonly number[], isArchived: boolean): Promise<void> {
    const verb = isArchived ? 'archive' : 'unarchive';
    return this._run(Commands.command, { experiment_ids: [...experimentIds], verb });
  }

  remove(experimentIds: readonly number[]): Promise<void> {
    return this._run(Commands.command, { experiment_ids: [...experimentIds], verb: 'delete' });
  }

  private _run(command: string, args: ReadonlyPartialJSONObject): Promise<void> {
    return this._say(this._commands.execute(command, args));
  }

  private async _say(operation: Promise<unknown>): Promise<void> {
    try {
      await operation;
    } catch (error) {
      Notification.error(error instanceof Error ? error.message : String(error));
    }
  }
}
