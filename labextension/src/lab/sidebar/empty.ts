/** The texts of empty sections: what to do next. */
import type { ITrans } from '../../model/trans.js';
import type { IEmpty } from './sidebarsection.js';

export interface IEmptyTexts {
  /** While connecting; without a text if the banner is shown (`isSaid`). */
  connecting: (isSaid: boolean) => IEmpty;
  first: () => IEmpty;
  noneEnded: (numArchived: number) => IEmpty;
  noSlots: (summary: string) => IEmpty;
  noTemplates: () => IEmpty;
}

const TEMPLATE = '%%det template set team\nresources: {slots_per_trial: 2}\nlabels: [team]';

export interface IInsertion {
  /** The configuration of a new cell, without an entrypoint. */
  newCell: () => string;
  insertNew: () => void;
  insert: (source: string) => void;
}

export function emptyTexts(trans: ITrans, { newCell, insertNew, insert }: IInsertion): IEmptyTexts {
  const withCell = (text: string, cell: string, onClick: () => void): IEmpty => ({
    text,
    cell,
    button: { text: trans.__('Insert into a notebook'), onClick }
  });
  return {
    connecting: isSaid => ({ text: isSaid ? '' : trans.__('Waiting for det_jupyter…') }),
    first: () =>
      withCell(
        trans.__(
          'No experiments yet. In a notebook, run %load_ext det_jupyter, define a trial, then run a cell like this:'
        ),
        `%%det_experiment\n${newCell().trimEnd()}`,
        insertNew
      ),
    noneEnded: numArchived => ({
      text: numArchived > 0 ? trans._n('%1 is archived.', 'All %1 are archived.', numArchived) : ''
    }),
    noSlots: summary => ({
      text: trans.__('There are no slots: no agent offers any (%1).', summary)
    }),
    noTemplates: () =>
      withCell(
        trans.__(
          'No templates yet. A template is a part of a configuration that many experiments share:'
        ),
        TEMPLATE,
        () => insert(TEMPLATE)
      )
  };
}

export function labelled(text: string, button: string, onClick: () => void): IEmpty {
  return { text, button: { text: button, onClick } };
}
